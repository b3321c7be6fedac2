-- Self-clocked fair queueing of tokens among the tenants of a lane (S. J. Golestani, INFOCOM 1994).
-- Needs keys, clock, record and lane.
-- A lane's stream holds a window of jobs. When that is full, jobs wait aside in `fair:<lane>`, each with a tag: its
-- tokens after the later of the lane's virtual time and its tenant's last tag. The least tag is next, and the virtual
-- time is the tag of the job that was let in last. So it goes on with each job, and tenants that never came before
-- cannot stand before those that wait for ever, as they can where new ones begin at the tag of the last job's start.
-- While nobody waits there are no tags.
local DEFAULT_WINDOW = 64
local room, any_aside = {}, nil

local function somebody_waits()
  for _, aside in pairs(FAIR) do
    if redis.call('ZCARD', aside) > 0 then return true end
  end
  return false
end

-- How many entries of this lane no worker has been given.
local function undelivered(lane)
  local pending = redis.pcall('XPENDING', K[lane], GROUP)
  return redis.call('XLEN', K[lane]) - (pending.err and 0 or pending[1])
end

local function put_aside(lane, id, hint, tenant)
  if any_aside == nil then
    any_aside = somebody_waits()
    if not any_aside then redis.call('UNLINK', K.vt) end
  end
  any_aside = true
  local field = lane .. ':' .. tenant
  local tags = redis.call('HMGET', K.vt, lane, field)
  local tag = string.format('%.0f', math.max(number(tags[1]), number(tags[2])) + math.max(1, number(hint)))
  redis.call('HSET', K.vt, field, tag)
  redis.call('ZADD', FAIR[lane], tag, id)
  return 'fair:' .. lane
end

-- Makes a job ready: in its lane if nobody waits and, for a tenant's, the window has room; else aside. Returns the place
-- that the record keeps. Jobs without a tenant are one tenant's while somebody waits, else they pass freely.
local function enter(lane, id, hint, tenant)
  if not room[lane] then
    local waiting = redis.call('ZCARD', FAIR[lane]) > 0
    room[lane] = { free = not waiting, jobs = -1 }
  end
  local here = room[lane]
  if here.free and tenant ~= '' then
    if here.jobs < 0 then
      local window = number(redis.call('HGET', K.meta, 'window') or DEFAULT_WINDOW)
      -- Where all is delivered a worker may be waiting for an entry.
      local least = undelivered(lane) <= 0 and 1 or 0
      here.jobs = math.max(window - redis.call('XLEN', K[lane]), least)
    end
    here.jobs = here.jobs - 1
    here.free = here.jobs >= 0
  end
  return here.free and join(lane, id, hint) or put_aside(lane, id, hint, tenant)
end
