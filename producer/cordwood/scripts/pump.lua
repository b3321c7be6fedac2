#!lua flags=allow-oom
-- Lets jobs that wait for their tenant's turn into a lane, in the order of their turns, while its window has room.
-- KEYS   fixed, then one record per job
-- ARGV   lane, window: the most jobs in the lane, ready or in workers' hands, 1 if the caller holds nothing and is to get
--        a job in any case; then job IDs, as `fair:<lane>` has them
-- returns the number let in
-- repeat goes on only while there is room: each is checked again
-- include: keys clock record lane turns

local lane, window = ARGV[1], tonumber(ARGV[2])
local left, let_in = math.max(window - redis.call('XLEN', K[lane]), tonumber(ARGV[3])), 0
local virtual = number(redis.call('HGET', K.vt, lane))
if redis.call('HGET', K.meta, 'window') ~= ARGV[2] then redis.call('HSET', K.meta, 'window', ARGV[2]) end

for i = 4, #ARGV do
  if let_in == left then break end
  local id = ARGV[i]
  local tag = tonumber(redis.call('ZSCORE', FAIR[lane], id) or '')
  if tag then
    local rec = read_record(KEYS[FIRST_RECORD + i - 4])
    if rec and rec.state == 'queued' and rec.entry == 'fair:' .. lane then
      redis.call('HSET', rec.key, 'en', join(lane, id, redis.call('HGET', rec.key, 'hi') or 0))
      virtual, let_in = math.max(virtual, tag), let_in + 1
    end
    redis.call('ZREM', FAIR[lane], id)
  end
end

-- Forgets tenants whose last job was let in, a few at each call, and more than came in.
local function forget_some()
  local found = redis.call('HSCAN', K.vt, redis.call('HGET', K.vt, 'cursor') or '0', 'COUNT', 16 + 2 * let_in)
  local times = redis.call('HMGET', K.vt, 'high', 'normal', 'low')
  local passed = { high = number(times[1]), normal = number(times[2]), low = number(times[3]) }
  for i = 1, #found[2], 2 do
    local of = string.match(found[2][i], '^(%l+):')
    if of and passed[of] and number(found[2][i + 1]) <= passed[of] then redis.call('HDEL', K.vt, found[2][i]) end
  end
  redis.call('HSET', K.vt, 'cursor', found[1])
end

if not somebody_waits() then
  redis.call('UNLINK', K.vt)
elseif let_in > 0 then
  redis.call('HSET', K.vt, lane, string.format('%.0f', virtual))
  forget_some()
end
return let_in
