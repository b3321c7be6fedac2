-- Putting jobs into lanes and taking them out. Needs keys.
-- Acknowledging and deleting is gathered, so that a call costs one XACK and one XDEL a lane.
local leaving = {}

-- Returns the lane and the entry ID that a record names; nothing if that can be none, as it would spoil the others' XACK.
local function split_entry(entry)
  local lane, ms, seq = string.match(entry, '^(%l+):(%d+)%-(%d+)$')
  if lane and #ms < 20 and #seq < 20 then return lane, ms .. '-' .. seq end
end

local function leave(lane, id)
  if lane and K[lane] then
    leaving[lane] = leaving[lane] or {}
    table.insert(leaving[lane], id)
  end
end

local function flush_leaving()
  for lane, ids in pairs(leaving) do
    redis.pcall('XACK', K[lane], GROUP, unpack(ids))
    redis.pcall('XDEL', K[lane], unpack(ids))
  end
  leaving = {}
end

-- Adds an entry and returns the name that the record keeps of it: '<lane>:<entry ID>'.
local function join(lane, id, hint)
  return lane .. ':' .. redis.call('XADD', K[lane], '*', 'id', id, 'n', hint)
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
