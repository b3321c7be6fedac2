#!lua flags=allow-oom
-- Notes which jobs a consumer is about to tokenise or compute, so that its death makes suspects of these alone.
-- KEYS   fixed
-- ARGV   consumer, stage, job IDs joined by spaces (none clears the note)
-- returns 1
-- repeat the same
-- include: keys

local field = ARGV[1] .. ':' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('HDEL', K.batch, field)
else
  redis.call('HSET', K.batch, field, ARGV[3])
end
return 1
