#!lua flags=allow-oom
-- Ends jobs as failed: the input is at fault.
-- KEYS   fixed, then one record per job
-- ARGV   per job: id, token, code, text
-- returns per job 'failed', 'already:<state>', 'lost' or 'bad' as finish does
-- repeat 'already:failed'
-- include: keys clock record lane settle lease

local answers = {}
for i = 1, #ARGV / 4 do
  local at = i * 4 - 3
  local rec, answer = hold(KEYS[FIRST_RECORD + i - 1], ARGV[at + 1])
  if rec then
    settle(rec, ARGV[at], 'failed', rec.result_ttl, 'ec', ARGV[at + 2], 'er', ARGV[at + 3])
    answer = 'failed'
  end
  answers[i] = answer
end
flush_settled()
return answers
