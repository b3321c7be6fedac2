#!lua flags=allow-oom
-- Begins an attempt at jobs whose entries this consumer holds.
-- KEYS   fixed, then one record per entry
-- ARGV   consumer, dead_ttl_ms, takeovers that make a suspect; then per entry: lane, entry ID, job ID ('' if the entry
--        names none that is acceptable), token (random, per call)
-- returns per entry a list:
--        'go', payload, attempt, 1 if a suspect   - run it
--        'lost'     - another consumer has the entry now; forget it
--        'stale'    - the record is final or names another entry; acknowledged and deleted
--        'expired', 'dead', 'ghost' (no record), 'bad' (not a record) - ended here; forget it
-- repeat with the same token: the same 'go', nothing counted
-- include: keys clock record lane settle

local consumer, dead_ttl, most_takeovers, WIDTH = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), 4

local function before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)%-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)%-(%d+)$')
  if a_ms ~= b_ms then return tonumber(a_ms) < tonumber(b_ms) end
  return tonumber(a_seq) < tonumber(b_seq)
end

-- One XPENDING over the range of the call's entries tells what this consumer owns.
local first, last, owned = {}, {}, {}
for at = 3, #ARGV - 1, WIDTH do
  local lane, entry = ARGV[at + 1], ARGV[at + 2]
  if not first[lane] or before(entry, first[lane]) then first[lane] = entry end
  if not last[lane] or before(last[lane], entry) then last[lane] = entry end
end
for lane, from in pairs(first) do
  owned[lane] = {}
  local page = 1000
  while page == 1000 do
    local pending = redis.pcall('XPENDING', K[lane], GROUP, from, last[lane], 1000, consumer)
    if pending.err then break end
    for _, item in ipairs(pending) do owned[lane][item[1]] = true end
    page = #pending
    if page == 1000 then from = '(' .. pending[page][1] end
  end
end

-- Ends entries that no attempt can be made at; returns the answer, or nil if an attempt is due.
local function refuse(rec, why, lane, entry, id)
  if not rec then
    local code = id == '' and 'bad-entry' or why == 'bad' and 'bad-record' or 'no-record'
    dead_letter(dead_ttl, id, code, { 'entry', lane .. ':' .. entry })
    leave(lane, entry)
    return why == 'bad' and 'bad' or 'ghost'
  end
  if FINAL[rec.state] or rec.entry ~= lane .. ':' .. entry then
    leave(lane, entry)
    return 'stale'
  end
  if rec.expires > 0 and rec.expires <= now then
    settle(rec, id, 'expired', {}, rec.result_ttl)
    return 'expired'
  end
end

local any_suspects = redis.call('EXISTS', K.suspects) == 1

local function is_suspect(id)
  return any_suspects and redis.call('SISMEMBER', K.suspects, id) == 1
end

-- A job that a dead worker left running costs no attempt, unless it may be what kills the workers.
local function begin(rec, id, token)
  local suspect = is_suspect(id)
  local counted, takeovers = true, 0
  if rec.state == 'running' then
    takeovers = rec.takeovers + 1
    if not suspect and takeovers >= most_takeovers then
      redis.call('SADD', K.suspects, id)
      suspect, any_suspects = true, true
    end
    counted = suspect
  end
  if counted and rec.attempts >= rec.max_attempts then
    local code = suspect and 'worker-died' or 'max-attempts'
    local text = suspect and 'every worker that ran it died' or 'no attempt is left'
    bury(rec, id, code, text, dead_ttl)
    return { 'dead' }
  end
  if rec.payload == '' then
    bury(rec, id, 'no-payload', 'the record has no payload', dead_ttl)
    return { 'dead' }
  end
  local attempt = rec.attempts + (counted and 1 or 0)
  redis.call('HSET', rec.key, 'st', 'running', 'tk', token, 'at', attempt, 't1', now, 'wk', consumer)
  if takeovers ~= rec.takeovers then redis.call('HSET', rec.key, 'to', takeovers) end
  return { 'go', rec.payload, attempt, suspect and 1 or 0 }
end

local answers = {}
for at = 3, #ARGV - 1, WIDTH do
  local lane, entry, id, token = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local i = (at - 3) / WIDTH + 1
  local rec, why = read_record(KEYS[FIRST_RECORD + i - 1])
  if rec and rec.state == 'running' and rec.token == token then
    answers[i] = { 'go', rec.payload, rec.attempts, is_suspect(id) and 1 or 0 }
  elseif not owned[lane][entry] then
    answers[i] = { 'lost' }
  else
    local refusal = refuse(rec, why, lane, entry, id)
    answers[i] = refusal and { refusal } or begin(rec, id, token)
  end
end
flush_settled()
return answers
