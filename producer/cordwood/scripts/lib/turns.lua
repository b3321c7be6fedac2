-- Start-time fair queueing of tokens among the tenants of a lane (Goyal, Vin and Cheng, SIGCOMM 1996).
-- Needs keys, clock, record and lane.
-- A lane's stream holds a window of jobs. When that is full, jobs wait aside in `fair:<lane>`, each with a tag: the later
-- of the lane's virtual time and the end of its tenant's last job, which is the last one's tag plus its tokens. The least
-- tag is next, and the virtual time is the tag of the job that was let in last. While nobody waits there are no tags.
local DEFAULT_WINDOW = 64
local room, any_aside = {}, nil

local function somebody_waits()
  for _, aside in pairs(FAIR) do
    if redis.call('ZCARD', aside) > 0 then return true end
  end
  return false
end

-- Whether a worker could be waiting for an entry of this lane.
local function all_delivered(lane)
  local groups, stream = redis.pcall('XINFO', 'GROUPS', K[lane]), redis.pcall('XINFO', 'STREAM', K[lane])
  if groups.err or stream.err or not groups[1] then return false end
  local function field(fields, name)
    for i = 1, #fields, 2 do
      if fields[i] == name then return fields[i + 1] end
    end
  end
  return field(groups[1], 'last-delivered-id') == field(stream, 'last-generated-id')
end

-- How many jobs may go from those aside into the lane now.
local function window_room(lane, window)
  local free = window - redis.call('XLEN', K[lane])
  return free > 0 and free or all_delivered(lane) and 1 or 0
end

local function put_aside(lane, id, hint, tenant)
  if any_aside == nil then
    any_aside = somebody_waits()
    if not any_aside then redis.call('UNLINK', K.vt) end
  end
  any_aside = true
  local field = lane .. ':' .. tenant
  local tags = redis.call('HMGET', K.vt, lane, field)
  local tag = math.max(number(tags[1]), number(tags[2]))
  redis.call('HSET', K.vt, field, string.format('%.0f', tag + math.max(1, number(hint))))
  redis.call('ZADD', FAIR[lane], string.format('%.0f', tag), id)
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
    if here.jobs < 0 then here.jobs = window_room(lane, number(redis.call('HGET', K.meta, 'window') or DEFAULT_WINDOW)) end
    here.jobs = here.jobs - 1
    here.free = here.jobs >= 0
  end
  return here.free and join(lane, id, hint) or put_aside(lane, id, hint, tenant)
end
