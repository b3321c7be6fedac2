#!lua flags=allow-oom
-- Ends jobs as cancelled, at once, whoever holds them.
-- KEYS   fixed, then one record per job
-- ARGV   job IDs
-- returns per job 'cancelled', 'already:<state>', 'missing' or 'bad'
-- repeat 'already:cancelled'
-- include: keys clock record lane settle

local answers = {}
for i, id in ipairs(ARGV) do
  local rec, why = read_record(KEYS[FIRST_RECORD + i - 1])
  if not rec then
    answers[i] = why
  elseif FINAL[rec.state] then
    answers[i] = 'already:' .. rec.state
  else
    settle(rec, id, 'cancelled', rec.result_ttl, 'pl', '')
    answers[i] = 'cancelled'
  end
end
flush_settled()
return answers
