-- Ending a job: store its outcome, then take its entry out, tell who waits, and count. Needs keys, clock, record, lane.
-- Invariants 1 and 2 are kept here: nothing is acknowledged but in the step that has stored the outcome.
local MIN_TTL, DONE_LENGTH = 120000, 2048
local waiting, counts, cleared, ttl_texts = {}, {}, {}, {}

-- Most jobs of a call share one TTL: each is formatted once.
local function ttl_text(ttl)
  ttl_texts[ttl] = ttl_texts[ttl] or string.format('%.0f', math.max(ttl, MIN_TTL))
  return ttl_texts[ttl]
end

local function count(kind)
  counts[kind] = (counts[kind] or 0) + 1
end

-- Takes a job out of those that wait for their tenant's turn, and gives the tenant back what it was charged for.
local function leave_turns(key, place, id)
  local lane = string.match(place, '^fair:(%l+)$')
  if not lane or not FAIR[lane] or redis.call('ZREM', FAIR[lane], id) == 0 then return end
  local f = redis.call('HMGET', key, 'tn', 'hi')
  local field = lane .. ':' .. (f[1] or '')
  local tags = redis.call('HMGET', K.vt, lane, field)
  local tag = number(tags[2]) - math.max(1, number(f[2]))
  if tag > number(tags[1]) then
    redis.call('HSET', K.vt, field, string.format('%.0f', tag))
  else
    redis.call('HDEL', K.vt, field)
  end
  if redis.call('EXISTS', FAIR.high, FAIR.normal, FAIR.low) == 0 then redis.call('UNLINK', K.vt) end
end

-- Stores the outcome `state` and further fields, given one by one. Where a replay cannot need the payload, the caller
-- gives it as empty, which costs less than a call that removes it.
local function settle(rec, id, state, ttl, ...)
  redis.call('HSET', rec.key, 'st', state, 't2', now_text, 'en', '', ...)
  if ttl > 0 then redis.call('PEXPIRE', rec.key, ttl_text(ttl)) end
  if rec.expires > 0 then redis.call('ZREM', K.expiring, id) end
  leave(split_entry(rec.entry))
  if rec.state == 'delayed' then redis.call('ZREM', K.delayed, id) end
  if rec.state == 'queued' then leave_turns(rec.key, rec.entry, id) end
  cleared[#cleared + 1] = id
  local mask, shard = rec.waiters, 0
  while mask > 0 do
    if mask % 2 == 1 then
      waiting[shard] = waiting[shard] or {}
      table.insert(waiting[shard], id)
    end
    mask, shard = math.floor(mask / 2), shard + 1
  end
  count(state)
end

-- Writes a dead letter, and forgets those older than `dead_ttl`.
local function dead_letter(dead_ttl, id, code, detail)
  redis.call('XTRIM', K.dead, 'MINID', '~', string.format('%.0f', now - dead_ttl))
  return redis.call('XADD', K.dead, '*', 'id', id, 'code', code, unpack(detail))
end

-- Ends a job in the dead letters; record and entry share `dead_ttl`.
local function bury(rec, id, code, text, dead_ttl)
  local entry = dead_letter(dead_ttl, id, code, { 'at', rec.attempts, 'er', text })
  settle(rec, id, 'dead', dead_ttl, 'ec', code, 'er', text, 'de', entry)
end

-- Must end every script that settles: acknowledges, tells the waiters and counts, once for all jobs of the call.
local function flush_settled()
  flush_leaving()
  if #cleared > 0 and redis.call('EXISTS', K.suspects) == 1 then
    redis.call('SREM', K.suspects, unpack(cleared))
  end
  for shard, ids in pairs(waiting) do
    if shard < 8 then
      local serial = redis.call('HINCRBY', K.stats, 'done:' .. shard, 1)
      redis.call('XADD', KEYS[FIRST_DONE + shard], 'MAXLEN', '~', DONE_LENGTH, '*',
        'n', serial, 'ids', table.concat(ids, ' '))
    end
  end
  for kind, n in pairs(counts) do redis.call('HINCRBY', K.stats, kind, n) end
end
