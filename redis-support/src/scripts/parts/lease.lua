-- The record of a lease of permits: the number of permits, the limit and the token of the grant,
-- and the description.
local write_lease = cmsgpack.pack

-- Returns the number of permits in the record of a lease, or nil if the record is missing.
local function units_of(record)
  return record and (cmsgpack.unpack(record))
end
