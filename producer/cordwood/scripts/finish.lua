#!lua flags=allow-oom
-- Ends jobs as done.
-- KEYS   fixed, then one record per job
-- ARGV   per job: id, token, result
-- returns per job 'done'; 'already:<state>' if it has left this attempt; 'lost' if the token is not the record's;
--        'bad' if the record is none
-- repeat 'already:done'
-- include: keys clock record lane settle lease

local answers = {}
for i = 1, #ARGV / 3 do
  local id, token, result = ARGV[i * 3 - 2], ARGV[i * 3 - 1], ARGV[i * 3]
  local rec, answer = hold(KEYS[FIRST_RECORD + i - 1], token)
  if rec then
    settle(rec, id, 'done', rec.result_ttl, 'rs', result, 'pl', '')
    answer = 'done'
  end
  answers[i] = answer
end
flush_settled()
return answers
