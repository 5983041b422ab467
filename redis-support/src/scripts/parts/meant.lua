--- @include "time"
-- The lease that an operator means, by the fingerprint of its id (`Fingerprint::of`): a 64-bit FNV-1a, whose halves are folded into one.
local function fingerprint(id)
  local high, low = 0xcbf29ce4, 0x84222325
  for n = 1, #id do
    low = bit.bxor(low, string.byte(id, n)) % 4294967296
    -- The prime is 2^40 + 0x1b3.
    local product = low * 0x1b3
    high = (high * 0x1b3 + math.floor(product / 4294967296) + low * 256) % 4294967296
    low = product % 4294967296
  end
  return bit.tohex(bit.bxor(high, low))
end

-- Whether the holder with this value of a mutex is meant; an empty fingerprint means every holder.
local function is_meant(value, wanted)
  return wanted == '' or fingerprint(string.match(value, '^[^ ]*')) == wanted
end

-- The id of the lease of units that is meant, and when it ends, if it is in force.
local function meant_of_units(held, now, wanted)
  local holders = redis.call('ZRANGEBYSCORE', held, '(' .. digits(now), '+inf', 'WITHSCORES')
  for n = 1, #holders, 2 do
    if fingerprint(holders[n]) == wanted then
      return holders[n], tonumber(holders[n + 1])
    end
  end
end
