#!lua flags=allow-oom
-- Begins an attempt at jobs whose entries this consumer holds.
-- KEYS   fixed, then one record per entry
-- ARGV   consumer, dead_ttl_ms, takeovers that make a suspect, stage under which the jobs begun are noted as by `mark`
--        ('' for no note), 1 to begin no suspect; then per entry: lane, entry ID, job ID ('' if the entry names none
--        that is acceptable), token (random, per call)
-- returns per entry a list:
--        'go', payload, attempt, 1 if a suspect, lane, ms until the deadline ('' if it has none)   - run it
--        'suspect'  - not begun as asked: to be begun alone
--        'lost'     - another consumer has the entry now; forget it
--        'stale'    - the record is final or names another entry; acknowledged and deleted
--        'expired', 'dead', 'ghost' (no record), 'bad' (not a record) - ended here; forget it
-- repeat with the same token: the same 'go', nothing counted
-- include: keys clock record lane settle

local consumer, dead_ttl, most_takeovers = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local stage, spares_suspects = ARGV[4], ARGV[5] == '1'
local DASH, WIDTH, HEAD = string.byte('-'), 4, 5

local function before(a, b)
  -- IDs of one length with the dash at one place, as all are until the year 2286, compare as they stand.
  if #a == #b and string.byte(a, 14) == DASH and string.byte(b, 14) == DASH then return a < b end
  local a_ms, a_seq = string.match(a, '^(%d+)%-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)%-(%d+)$')
  if a_ms ~= b_ms then return tonumber(a_ms) < tonumber(b_ms) end
  return tonumber(a_seq) < tonumber(b_seq)
end

-- One XPENDING over the range of the call's entries tells what this consumer owns.
local first, last, owned = {}, {}, {}
for at = HEAD, #ARGV - 1, WIDTH do
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

-- Ends an entry that no attempt can be made at; returns the answer.
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
  settle(rec, id, 'expired', rec.result_ttl, 'pl', '')
  return 'expired'
end

local any_suspects = redis.call('EXISTS', K.suspects) == 1

local function is_suspect(id)
  return any_suspects and redis.call('SISMEMBER', K.suspects, id) == 1
end

local function refused(answer)
  return { answer }
end

-- The answer for a job that is to run. A deadline is soft: a job that is late already still runs.
local function go(f, attempts, suspect)
  local deadline = number(f[10])
  return { 'go', f[8] or '', attempts, suspect and 1 or 0, f[9] or '', deadline > 0 and deadline - now or '' }
end

-- Begins an attempt at a job whose fields are `f`, in the order in which `attempt_at` reads them.
-- A job that a dead worker left running costs no attempt, unless it may be what kills the workers.
local function begin(f, key, id, token)
  local suspect, attempts, before_takeovers = is_suspect(id), number(f[4]), number(f[6])
  local counted, takeovers = true, 0
  if f[1] == 'running' then
    takeovers = before_takeovers + 1
    if not suspect and takeovers >= most_takeovers then
      redis.call('SADD', K.suspects, id)
      suspect, any_suspects = true, true
    end
    counted = suspect
  end
  if suspect and spares_suspects then return refused('suspect') end
  if counted and attempts >= number(f[5]) then
    local code = suspect and 'worker-died' or 'max-attempts'
    local text = suspect and 'every worker that ran it died' or 'no attempt is left'
    bury(read_record(key), id, code, text, dead_ttl)
    return refused('dead')
  end
  if not f[8] or f[8] == '' then
    bury(read_record(key), id, 'no-payload', 'the record has no payload', dead_ttl)
    return refused('dead')
  end
  if counted then attempts = attempts + 1 end
  redis.call('HSET', key, 'st', 'running', 'tk', token, 'at', attempts, 't1', now_text, 'wk', consumer)
  if takeovers ~= before_takeovers then redis.call('HSET', key, 'to', takeovers) end
  return go(f, attempts, suspect)
end

local function attempt_at(key, lane, entry, id, token)
  local f = read_fields(key, 'st', 'tk', 'en', 'at', 'ma', 'to', 'ex', 'pl', 'ln', 'dl')
  if f and f[1] == 'running' and f[2] == token then return go(f, number(f[4]), is_suspect(id)) end
  if not owned[lane][entry] then return refused('lost') end
  local expires = f and number(f[7]) or 0
  if f and LIVE[f[1]] and f[3] == lane .. ':' .. entry and not (expires > 0 and expires <= now) then
    return begin(f, key, id, token)
  end
  local rec, why = read_record(key)
  return refused(refuse(rec, why, lane, entry, id))
end

local answers, begun_ids = {}, {}
for at = HEAD, #ARGV - 1, WIDTH do
  local i = (at - HEAD) / WIDTH + 1
  answers[i] = attempt_at(KEYS[FIRST_RECORD + i - 1], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  if answers[i][1] == 'go' then begun_ids[#begun_ids + 1] = ARGV[at + 3] end
end
flush_settled()
if stage ~= '' and #begun_ids > 0 then
  redis.call('HSET', K.batch, consumer .. ':' .. stage, table.concat(begun_ids, ' '))
end
return answers
