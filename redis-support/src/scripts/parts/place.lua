-- A place in a queue is a record: when it ends (in ms), how many units its claim wants, the limit that the claim names, and for how many ms
-- the claim is waited for once there is room for it (0: until the place ends). The place of a claim for a mutex has two more: the channel
-- that its client listens to (`-`: none) and the value of the lock. One field of a hash holds it all: a field for each would make the server look
-- up as many.
local write_place = cmsgpack.pack

-- Reads a place. A missing place has ended.
local function read_place(record)
  if not record then
    return 0
  end
  return cmsgpack.unpack(record)
end
