-- Ending a job: store its outcome, then take its entry out, tell who waits, and count. Needs keys, clock, record, lane.
-- Invariants 1 and 2 are kept here: nothing is acknowledged but in the step that has stored the outcome.
local MIN_TTL, DONE_LENGTH = 120000, 2048
local waiting, counts, cleared = {}, {}, {}

local function count(kind)
  counts[kind] = (counts[kind] or 0) + 1
end

-- Removes what a job that leaves its present place has there: entry, delay, suspicion.
local function clear_place(rec, id)
  leave(split_entry(rec.entry))
  if rec.state == 'delayed' then redis.call('ZREM', K.delayed, id) end
end

local function forget_suspect(id)
  table.insert(cleared, id)
end

-- Stores the outcome `state` with `fields` (a flat list), keeping the payload only where a replay may need it.
local function settle(rec, id, state, fields, ttl)
  -- An empty payload costs less than a call that removes it.
  if state ~= 'failed' and state ~= 'dead' then
    fields[#fields + 1] = 'pl'
    fields[#fields + 1] = ''
  end
  redis.call('HSET', rec.key, 'st', state, 't2', now, 'en', '', unpack(fields))
  if ttl > 0 then redis.call('PEXPIRE', rec.key, math.max(ttl, MIN_TTL)) end
  if rec.expires > 0 then redis.call('ZREM', K.expiring, id) end
  clear_place(rec, id)
  forget_suspect(id)
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
  settle(rec, id, 'dead', { 'ec', code, 'er', text, 'de', entry }, dead_ttl)
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
