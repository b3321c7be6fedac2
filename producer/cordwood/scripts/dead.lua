#!lua flags=allow-oom
-- Ends jobs in the dead letters.
-- KEYS   fixed, then one record per job
-- ARGV   dead_ttl_ms; then per job: id, token, code, text
-- returns per job 'dead', 'already:<state>', 'lost' or 'bad' as finish does
-- repeat 'already:dead'
-- include: keys clock record lane settle lease

local dead_ttl, answers = tonumber(ARGV[1]), {}
for i = 1, (#ARGV - 1) / 4 do
  local at = i * 4 - 2
  local rec, answer = hold(KEYS[FIRST_RECORD + i - 1], ARGV[at + 1])
  if rec then
    bury(number_attempts(rec), ARGV[at], ARGV[at + 2], ARGV[at + 3], dead_ttl)
    answer = 'dead'
  end
  answers[i] = answer
end
flush_settled()
return answers
