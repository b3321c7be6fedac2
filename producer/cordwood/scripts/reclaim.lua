#!lua flags=allow-oom
-- Takes over entries of consumers whose sign of life is gone, and makes suspects of the jobs they were handling.
-- KEYS   fixed
-- ARGV   consumer, ttl_ms, most entries to take
-- returns a list of entries taken, each: lane, entry ID, job ID, hint, 1 if the entry is there (0: deleted by hand)
-- repeat takes the next ones; those of a lost reply are found by the worker's self-check
-- include: keys clock

local consumer, ttl, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local taken = {}

local function alive(name)
  local score = tonumber(redis.call('ZSCORE', K.workers, name) or '')
  return score ~= nil and math.abs(now - score) <= ttl
end

local function marked_jobs(name)
  local marks = {}
  for _, text in ipairs(redis.call('HMGET', K.batch, name .. ':tokenise', name .. ':run')) do
    for id in string.gmatch(text or '', '%S+') do marks[id] = true end
  end
  return marks
end

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return ''
end

local function take_from(lane, name, marks)
  local pending = redis.call('XPENDING', K[lane], GROUP, '-', '+', room, name)
  if #pending == 0 then return end
  local ids, found = {}, {}
  for i, item in ipairs(pending) do ids[i] = item[1] end
  for _, entry in ipairs(redis.call('XCLAIM', K[lane], GROUP, consumer, 0, unpack(ids))) do
    if entry and entry[2] then found[entry[1]] = entry[2] end
  end
  for _, entry in ipairs(ids) do
    local id = found[entry] and field(found[entry], 'id') or ''
    if id ~= '' and marks[id] then redis.call('SADD', K.suspects, id) end
    taken[#taken + 1] = { lane, entry, id, found[entry] and field(found[entry], 'n') or '', found[entry] and 1 or 0 }
    if not found[entry] then redis.call('XACK', K[lane], GROUP, entry) end
  end
  room = room - #ids
end

local grace = tonumber(redis.call('HGET', K.meta, 'grace_until') or '') or 0
if now < grace or not alive(consumer) then return taken end
for _, lane in ipairs(LANES) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', K[lane], GROUP)
  if not consumers.err then
    for _, info in ipairs(consumers) do
      local name = field(info, 'name')
      if room > 0 and name ~= consumer and field(info, 'pending') > 0 and not alive(name) then
        take_from(lane, name, marked_jobs(name))
      end
    end
  end
end
if #taken > 0 then redis.call('HINCRBY', K.stats, 'reclaimed', #taken) end
return taken
