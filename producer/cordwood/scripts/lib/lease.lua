-- The lease is the token (invariant 3). Needs record.
-- Returns the record if it is running with this token; else nil and the answer for the caller.
local function hold(key, token)
  local rec, why = read_record(key)
  if not rec then return nil, why == 'bad' and 'bad' or 'lost' end
  if token == '' or rec.token ~= token then return nil, 'lost' end
  if rec.state ~= 'running' then return nil, 'already:' .. rec.state end
  return rec
end
