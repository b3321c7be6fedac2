#!lua flags=allow-oom
-- Makes delayed jobs ready whose time has come: retries in the lane `again`, others in their own.
-- KEYS   fixed, then one record per job
-- ARGV   job IDs, as the sweeper read them
-- returns the number made ready
-- repeat 0: each is checked again
-- include: keys clock record lane turns

local promoted = 0
for i, id in ipairs(ARGV) do
  local due = tonumber(redis.call('ZSCORE', K.delayed, id) or '')
  -- They come in the order of their time.
  if due and due > now then break end
  if due then
    local rec = read_record(KEYS[FIRST_RECORD + i - 1])
    if rec and rec.state == 'delayed' then
      local f = redis.call('HMGET', rec.key, 'hi', 'tn')
      local hint, tenant = f[1] or 0, f[2] or ''
      local entry = rec.attempts > 0 and join('again', id, hint) or enter(rec.lane, id, hint, tenant)
      redis.call('HSET', rec.key, 'st', 'queued', 'en', entry)
      promoted = promoted + 1
    end
    redis.call('ZREM', K.delayed, id)
  end
end
return promoted
