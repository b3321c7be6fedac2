#!lua flags=allow-oom
-- Renews everything that a consumer holds, buffered entries too, and tells it what that is.
-- KEYS   fixed
-- ARGV   consumer
-- returns for each lane a list of the entry IDs that are pending for this consumer
-- repeat harmless
-- include: keys

local PAGE = 1000
local answers = {}
for i, lane in ipairs(LANES) do
  local ids, from, page = {}, '-', PAGE
  while page == PAGE do
    local pending = redis.pcall('XPENDING', K[lane], GROUP, from, '+', PAGE, ARGV[1])
    if pending.err then break end
    local chunk = {}
    for n, item in ipairs(pending) do
      chunk[n] = item[1]
      ids[#ids + 1] = item[1]
    end
    page = #pending
    if page > 0 then
      chunk[#chunk + 1] = 'JUSTID'
      redis.call('XCLAIM', K[lane], GROUP, ARGV[1], 0, unpack(chunk))
      from = '(' .. ids[#ids]
    end
  end
  answers[i] = ids
end
return answers
