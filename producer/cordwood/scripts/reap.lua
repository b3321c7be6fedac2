#!lua flags=allow-oom
-- Removes consumers that hold nothing in any lane and show no sign of life.
-- KEYS   fixed
-- ARGV   ttl_ms
-- returns the names removed
-- repeat nothing left to remove
-- include: keys clock

local ttl, pending, names = tonumber(ARGV[1]), {}, {}

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

for _, lane in ipairs(LANES) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', K[lane], GROUP)
  if not consumers.err then
    for _, info in ipairs(consumers) do
      local name = field(info, 'name')
      pending[name] = (pending[name] or 0) + field(info, 'pending')
    end
  end
end
for _, name in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do pending[name] = pending[name] or 0 end
for name, held in pairs(pending) do
  local score = tonumber(redis.call('ZSCORE', K.workers, name) or '')
  if held == 0 and not (score and math.abs(now - score) <= ttl) then
    for _, lane in ipairs(LANES) do redis.pcall('XGROUP', 'DELCONSUMER', K[lane], GROUP, name) end
    redis.call('ZREM', K.workers, name)
    redis.call('HDEL', K.info, name)
    redis.call('HDEL', K.batch, name .. ':tokenise', name .. ':run')
    names[#names + 1] = name
  end
end
return names
