#!lua
-- Accepts jobs. The one script, with replay, that a server without memory refuses.
-- KEYS   fixed, then one record per job
-- ARGV   max_depth, waiter mask of the caller; then per job:
--        id, lane, hint, payload, digest, delay_ms, expires_ms (0 none), max_attempts, result_ttl_ms (0 never),
--        deadline_ms (0 none), tenant ('' none)
-- returns per job 'new', 'dup:<state>', 'conflict' (another digest) or 'bad';
--        or 'full:depth' / 'full:memory' alone, and then nothing was written
-- repeat 'dup:<state>'; the caller's waiter bit is set either way
-- include: keys clock record lane turns

local max_depth, mask, WIDTH = tonumber(ARGV[1]), tonumber(ARGV[2]), 11
local total = (#ARGV - 2) / WIDTH
local limit = redis.call('HGET', K.meta, 'max_depth')
if limit then max_depth = tonumber(limit) or max_depth end

local function memory_is_short()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then return false end
  local most = tonumber(string.match(info, 'maxmemory:(%d+)')) or 0
  local used = tonumber(string.match(info, 'used_memory:(%d+)')) or 0
  return most > 0 and used > 0.85 * most
end

local function depth()
  local sum = redis.call('ZCARD', K.delayed)
  for _, lane in ipairs(LANES) do sum = sum + redis.call('XLEN', K[lane]) end
  for _, aside in pairs(FAIR) do sum = sum + redis.call('ZCARD', aside) end
  return sum
end

-- First look at every record, then write: an error in the middle would leave half a call done.
local answers, masks, digests, fresh = {}, {}, {}, 0
for i = 1, total do
  local at = 2 + (i - 1) * WIDTH
  local id, digest, key = ARGV[at + 1], ARGV[at + 5], KEYS[FIRST_RECORD + i - 1]
  local found = redis.pcall('HMGET', key, 'st', 'dg', 'wm')
  if found.err then
    answers[i] = 'bad'
  elseif digests[id] then
    answers[i] = digests[id] == digest and 'dup:queued' or 'conflict'
  elseif not found[1] then
    answers[i], digests[id], fresh = 'new', digest, fresh + 1
  elseif found[2] ~= digest then
    answers[i] = 'conflict'
  else
    answers[i], masks[i] = 'dup:' .. found[1], number(found[3])
  end
end
if fresh > 0 then
  if depth() + fresh > max_depth then return 'full:depth' end
  if memory_is_short() then return 'full:memory' end
end

local function accept(i, at)
  local id, lane, hint = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local delay, expires, deadline = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), tonumber(ARGV[at + 10])
  local tenant = ARGV[at + 11]
  local expiry = expires > 0 and now + expires or 0
  local state, entry = 'queued', ''
  if delay > 0 then
    state = 'delayed'
    redis.call('ZADD', K.delayed, now + delay, id)
  else
    entry = enter(lane, id, hint, tenant)
  end
  local key = KEYS[FIRST_RECORD + i - 1]
  redis.call('HSET', key, 'v', 1, 'st', state, 'pl', ARGV[at + 4], 'dg', ARGV[at + 5],
    'ln', lane, 'en', entry, 'at', 0, 'ma', ARGV[at + 8], 'wm', mask, 'ex', expiry, 't0', now_text,
    'rt', ARGV[at + 9], 'hi', hint)
  if tenant ~= '' then redis.call('HSET', key, 'tn', tenant) end
  if deadline > 0 then redis.call('HSET', key, 'dl', now + deadline) end
  if expiry > 0 then redis.call('ZADD', K.expiring, expiry, id) end
end

for i = 1, total do
  if answers[i] == 'new' then
    accept(i, 2 + (i - 1) * WIDTH)
  elseif masks[i] and bit.bor(masks[i], mask) ~= masks[i] then
    redis.call('HSET', KEYS[FIRST_RECORD + i - 1], 'wm', bit.bor(masks[i], mask))
  end
end
if fresh > 0 then redis.call('HINCRBY', K.stats, 'submitted', fresh) end
return answers
