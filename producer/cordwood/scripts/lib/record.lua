-- Reading a job's record. A key of another type reads as 'bad' and is never written to.
local FINAL = { done = true, failed = true, dead = true, cancelled = true, expired = true }
local LIVE = { queued = true, running = true, delayed = true }

-- Reads a whole number; 0 for anything else, whoever wrote it: 'inf' would make a loop endless, 1e300 break a PEXPIRE.
local function number(text)
  local n = tonumber(text or '')
  if not n or not (n > -1e15 and n < 1e15) then return 0 end
  return math.floor(n)
end

-- Reads fields of a record, the first of which must be 'st'. Returns the list, or nil and why not: 'missing' or 'bad'.
local function read_fields(key, ...)
  local f = redis.pcall('HMGET', key, ...)
  if f.err then return nil, 'bad' end
  if not f[1] then
    return nil, redis.call('EXISTS', key) == 1 and 'bad' or 'missing'
  end
  if not FINAL[f[1]] and not LIVE[f[1]] then return nil, 'bad' end
  return f
end

-- Returns the record without its payload, or nil and why not. The scripts that every job passes through read less.
local function read_record(key)
  local f, why = read_fields(key, 'st', 'tk', 'en', 'ln', 'at', 'ma', 'to', 'ex', 'wm', 'rt')
  if not f then return nil, why end
  local lane = f[4] or ''
  return {
    key = key, state = f[1], token = f[2] or '', entry = f[3] or '',
    lane = (lane == 'high' or lane == 'low') and lane or 'normal',
    attempts = number(f[5]), max_attempts = number(f[6]), takeovers = number(f[7]),
    expires = number(f[8]), waiters = number(f[9]), result_ttl = number(f[10]),
  }
end
