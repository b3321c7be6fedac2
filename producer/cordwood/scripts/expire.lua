#!lua flags=allow-oom
-- Ends overdue jobs that no worker has begun.
-- KEYS   fixed, then one record per job
-- ARGV   job IDs, as the sweeper read them
-- returns per job 'expired', 'running' (looked at again later), 'early', or 'gone'
-- repeat 'gone': each is checked again
-- include: keys clock record lane settle

local LATER, answers = 5000, {}
for i, id in ipairs(ARGV) do
  local rec = read_record(KEYS[FIRST_RECORD + i - 1])
  if not rec or FINAL[rec.state] or rec.expires == 0 then
    redis.call('ZREM', K.expiring, id)
    answers[i] = 'gone'
  elseif rec.expires > now then
    answers[i] = 'early'
  elseif rec.state == 'running' then
    redis.call('ZADD', K.expiring, now + LATER, id)
    answers[i] = 'running'
  else
    settle(rec, id, 'expired', rec.result_ttl, 'pl', '')
    answers[i] = 'expired'
  end
end
flush_settled()
return answers
