-- The record of a lease of units in a hash: its units, the limit and the token of its grant, and its description.
local write_lease = cmsgpack.pack

-- How many units a lease has, by its record; nil if that is missing.
local function units_of(record)
  return record and (cmsgpack.unpack(record))
end
