#!lua flags=allow-oom
-- A worker's sign of life.
-- If even the newest sign is older than a TTL, or lies over a TTL in the future, then the server was frozen or its
-- clock was set, and nobody is to be taken for dead until all have had time to show that they live.
-- KEYS   fixed
-- ARGV   consumer, ttl_ms, beat_ms, info
-- returns now_ms, 1 if the queue is paused, ms that reclaim must still wait, number of workers that show signs of life
-- repeat harmless
-- include: keys clock

local consumer, ttl, beat = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local most = now + beat + 1000
local grace = tonumber(redis.call('HGET', K.meta, 'grace_until') or '') or 0
local newest = redis.call('ZREVRANGE', K.workers, 0, 0, 'WITHSCORES')[2]
if newest and math.abs(now - tonumber(newest)) > ttl or grace > most then
  grace = most
  redis.call('HSET', K.meta, 'grace_until', grace)
end
redis.call('ZADD', K.workers, now, consumer)
redis.call('HSET', K.info, consumer, ARGV[4])
local workers = redis.call('ZCOUNT', K.workers, now - ttl, now + ttl)
return { now, redis.call('HGET', K.meta, 'paused') == '1' and 1 or 0, math.max(0, grace - now), workers }
