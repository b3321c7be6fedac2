-- The server's time in ms, as a number and as text: the only clock that scripts know.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local now_text = string.format('%.0f', now)
