-- The lease is the token (invariant 3). Needs record.
-- Returns what ending a job needs of its record if that is running with this token; else nil and the answer for the
-- caller. `number_attempts` adds what only the rarer endings need.
local function hold(key, token)
  local f, why = read_fields(key, 'st', 'tk', 'en', 'ex', 'wm', 'rt')
  if not f then return nil, why == 'bad' and 'bad' or 'lost' end
  if token == '' or f[2] ~= token then return nil, 'lost' end
  if f[1] ~= 'running' then return nil, 'already:' .. f[1] end
  return {
    key = key, state = 'running', entry = f[3] or '',
    expires = number(f[4]), waiters = number(f[5]), result_ttl = number(f[6]),
  }
end

local function number_attempts(rec)
  local f = redis.call('HMGET', rec.key, 'at', 'ma')
  rec.attempts, rec.max_attempts = number(f[1]), number(f[2])
  return rec
end
