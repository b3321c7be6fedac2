#!lua flags=allow-oom
-- Asks to be told when jobs end, and returns what they are now.
-- KEYS   fixed, then one record per job
-- ARGV   waiter mask of the caller; then the names of the record's fields to return, the first being 'st'
-- returns per job a list: remaining TTL in ms (-1 none, -2 no such job), then the fields
-- repeat the same
-- include: keys record

local mask = tonumber(ARGV[1])
local names = {}
for i = 2, #ARGV do names[i - 1] = ARGV[i] end

local answers = {}
for i = FIRST_RECORD, #KEYS do
  local fields = redis.pcall('HMGET', KEYS[i], unpack(names))
  if fields.err then
    answers[#answers + 1] = { -2 }
  else
    if LIVE[fields[1]] and mask > 0 then
      local old = number(redis.call('HGET', KEYS[i], 'wm'))
      if bit.bor(old, mask) ~= old then redis.call('HSET', KEYS[i], 'wm', bit.bor(old, mask)) end
    end
    answers[#answers + 1] = { redis.call('PTTL', KEYS[i]), unpack(fields, 1, #names) }
  end
end
return answers
