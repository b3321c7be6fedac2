#!lua flags=allow-oom
-- Puts jobs aside for another attempt after a delay, or into the dead letters if none is left.
-- KEYS   fixed, then one record per job
-- ARGV   dead_ttl_ms; then per job: id, token, delay_ms, code, text
-- returns per job 'delayed' or 'dead'; 'already:<state>', 'lost' or 'bad' as finish does
-- repeat 'already:delayed' or 'already:dead'
-- include: keys clock record lane settle lease

local dead_ttl, answers = tonumber(ARGV[1]), {}

local function put_aside(rec, id, delay, code, text)
  if rec.attempts >= rec.max_attempts then
    bury(rec, id, code, text, dead_ttl)
    return 'dead'
  end
  redis.call('ZADD', K.delayed, now + delay, id)
  redis.call('HSET', rec.key, 'st', 'delayed', 'en', '', 'ec', code, 'er', text, 'to', 0)
  leave(split_entry(rec.entry))
  count('retried')
  return 'delayed'
end

for i = 1, (#ARGV - 1) / 5 do
  local at = i * 5 - 3
  local rec, answer = hold(KEYS[FIRST_RECORD + i - 1], ARGV[at + 1])
  if rec then
    answer = put_aside(number_attempts(rec), ARGV[at], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4])
  end
  answers[i] = answer
end
flush_settled()
return answers
