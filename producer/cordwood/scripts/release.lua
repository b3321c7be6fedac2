#!lua flags=allow-oom
-- Hands jobs back unharmed: ready again at once, in the lane `again`, the attempt not counted.
-- KEYS   fixed, then one record per job
-- ARGV   consumer; then per job: id, token ('' if it was not started), lane, entry ID
-- returns per job 'queued'; 'already:<state>', 'lost' or 'bad' as finish does
-- repeat 'already:queued' with a token, else 'lost'
-- include: keys clock record lane settle lease

local consumer = ARGV[1]

-- A job that was fetched but not started has no token: the lease is the pending entry.
local function hold_entry(key, lane, entry)
  local rec, why = read_record(key)
  if not rec then return nil, why == 'bad' and 'bad' or 'lost' end
  if not LIVE[rec.state] or rec.entry ~= lane .. ':' .. entry then return nil, 'lost' end
  local pending = redis.pcall('XPENDING', K[lane], GROUP, entry, entry, 1, consumer)
  if pending.err or not pending[1] then return nil, 'lost' end
  return rec
end

local answers = {}
for i = 1, (#ARGV - 1) / 4 do
  local at = i * 4 - 2
  local id, token, key = ARGV[at], ARGV[at + 1], KEYS[FIRST_RECORD + i - 1]
  local rec, answer
  if token == '' then
    rec, answer = hold_entry(key, ARGV[at + 2], ARGV[at + 3])
  else
    rec, answer = hold(key, token)
    if rec then number_attempts(rec) end
  end
  if rec then
    local hint = redis.call('HGET', key, 'hi') or 0
    local fields = { 'en', join('again', id, hint) }
    -- Left running by a dead worker and not begun here: it stays a takeover for whoever starts it.
    if token ~= '' then fields = { 'st', 'queued', 'at', math.max(0, rec.attempts - 1), unpack(fields) } end
    redis.call('HSET', key, unpack(fields))
    leave(split_entry(rec.entry))
    count('released')
    answer = 'queued'
  end
  answers[i] = answer
end
flush_settled()
return answers
