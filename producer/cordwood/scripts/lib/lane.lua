-- Putting jobs into lanes and taking them out. Needs keys and clock.
-- Acknowledging and deleting is gathered, so that a call costs one XACK and one XDEL a lane.
local leaving = {}

-- Returns the lane and the entry ID that a record names; nothing if that can be none, as it would spoil the others' XACK.
local function split_entry(entry)
  local lane, ms, seq = string.match(entry, '^(%l+):(%d+)%-(%d+)$')
  if lane and #ms < 20 and #seq < 20 then return lane, ms .. '-' .. seq end
end

local function leave(lane, id)
  if lane and K[lane] then
    local ids = leaving[lane] or {}
    ids[#ids + 1] = id
    leaving[lane] = ids
  end
end

local function flush_leaving()
  for lane, ids in pairs(leaving) do
    redis.pcall('XACK', K[lane], GROUP, unpack(ids))
    redis.pcall('XDEL', K[lane], unpack(ids))
  end
  leaving = {}
end

-- A stream that was deleted and made again begins to count anew within the same millisecond, and an entry could get the
-- ID of one that is gone: whoever still holds that one, or a record that still names it, would then delete another
-- job's, or the new one of the same job. So its first ID has a sequence number that no other is likely to have had.
local begun = {}

local function first_id(lane, id)
  begun[lane] = true
  if redis.call('XLEN', K[lane]) > 0 then return '*' end
  local info = redis.pcall('XINFO', 'STREAM', K[lane])
  for i = 1, info.err and 0 or #info, 2 do
    if info[i] == 'last-generated-id' and info[i + 1] ~= '0-0' then return '*' end
  end
  local moment = redis.call('TIME')
  return now_text .. '-' .. tonumber(string.sub(redis.sha1hex(id .. moment[1] .. moment[2]), 1, 8), 16)
end

-- Adds an entry and returns the name that the record keeps of it: '<lane>:<entry ID>'.
local function join(lane, id, hint)
  local entry_id = begun[lane] and '*' or first_id(lane, id)
  return lane .. ':' .. redis.call('XADD', K[lane], entry_id, 'id', id, 'n', hint)
end

local function entry_exists(entry, id)
  local lane, entry_id = split_entry(entry)
  if not lane or not K[lane] then return false end
  local found = redis.pcall('XRANGE', K[lane], entry_id, entry_id)
  if found.err or not found[1] then return false end
  local fields = found[1][2]
  for i = 1, #fields, 2 do
    if fields[i] == 'id' then return fields[i + 1] == id end
  end
  return false
end
