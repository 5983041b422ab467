-- The record of a queue entry contains: when it expires (in ms), the number of requested permits,
-- the limit of the claim, and its patience in ms (0: until the entry expires). The entry of a claim
-- for a mutex also contains the channel that its client listens to (`-`: none) and the value of the
-- lock. All of this is one field of a hash, because separate fields would need more lookups.
local write_place = cmsgpack.pack

-- Reads the record of a queue entry. A missing entry counts as expired.
local function read_place(record)
  if not record then
    return 0
  end
  return cmsgpack.unpack(record)
end
