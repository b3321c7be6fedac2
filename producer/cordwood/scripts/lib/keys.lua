-- The fixed keys, in the order of cordwood.keys: KEYS 1 to 28. Records follow from KEYS[FIRST_RECORD].
local K = {
  again = KEYS[1], high = KEYS[2], normal = KEYS[3], low = KEYS[4],
  delayed = KEYS[5], expiring = KEYS[6], dead = KEYS[7], outbox = KEYS[8],
  workers = KEYS[9], batch = KEYS[10], suspects = KEYS[11], info = KEYS[12],
  sets = KEYS[13], stats = KEYS[14], meta = KEYS[15], spec = KEYS[16], vt = KEYS[25],
}
local FAIR = { high = KEYS[26], normal = KEYS[27], low = KEYS[28] }
local FIRST_DONE, FIRST_RECORD = 17, 29
local LANES = { 'again', 'high', 'normal', 'low' }
local GROUP = 'workers'
