--- @include "time"
-- Returns the fingerprint of a lease id (`Fingerprint::of`), by which operators select a lease. It
-- is a 64-bit FNV-1a hash whose halves are combined.
local function fingerprint(id)
  local high, low = 0xcbf29ce4, 0x84222325
  for n = 1, #id do
    low = bit.bxor(low, string.byte(id, n)) % 4294967296
    -- The prime number is 2^40 + 0x1b3.
    local product = low * 0x1b3
    high = (high * 0x1b3 + math.floor(product / 4294967296) + low * 256) % 4294967296
    low = product % 4294967296
  end
  return bit.tohex(bit.bxor(high, low))
end

-- Returns whether the holder of a mutex with this value is selected. An empty fingerprint selects
-- every holder.
local function is_meant(value, wanted)
  return wanted == '' or fingerprint(string.match(value, '^[^ ]*')) == wanted
end

-- Returns the id of the selected lease of permits and when it expires, if it is in force.
local function meant_of_units(held, now, wanted)
  local holders = redis.call('ZRANGEBYSCORE', held, '(' .. digits(now), '+inf', 'WITHSCORES')
  for n = 1, #holders, 2 do
    if fingerprint(holders[n]) == wanted then
      return holders[n], tonumber(holders[n + 1])
    end
  end
end
