#!lua flags=allow-oom
-- Gives jobs their place back that records have and streams have not: after a flushed stream, a deleted entry.
-- KEYS   fixed, then records, as a SCAN found them
-- ARGV   1 to mend, 0 to report only; then the job ID of each record
-- returns per job 'entry' (a lane entry was missing), 'delay' (a delay was missing), 'bad', or 'whole'
-- repeat 'whole'
-- include: keys clock record lane

local mend, answers = ARGV[1] == '1', {}

local function waits_for_its_turn(place, id)
  local lane = string.match(place, '^fair:(%l+)$')
  return lane and FAIR[lane] and redis.call('ZSCORE', FAIR[lane], id)
end

local function check(rec, id)
  if rec.state == 'delayed' then
    if redis.call('ZSCORE', K.delayed, id) then return 'whole' end
    if mend then redis.call('ZADD', K.delayed, now, id) end
    return 'delay'
  end
  if entry_exists(rec.entry, id) or waits_for_its_turn(rec.entry, id) then return 'whole' end
  if mend then
    local hint = redis.call('HGET', rec.key, 'hi') or 0
    redis.call('HSET', rec.key, 'en', join(rec.state == 'running' and 'again' or rec.lane, id, hint))
    leave(split_entry(rec.entry))
  end
  return 'entry'
end

for i = 2, #ARGV do
  local rec, why = read_record(KEYS[FIRST_RECORD + i - 2])
  if not rec then
    answers[i - 1] = why == 'bad' and 'bad' or 'whole'
  elseif FINAL[rec.state] then
    answers[i - 1] = 'whole'
  else
    answers[i - 1] = check(rec, ARGV[i])
  end
end
flush_leaving()
return answers
