-- Releases and acquires many mutexes of one client, in any hash slots of one server of a cluster.
--
-- KEYS  none: declared keys have to lie in one slot, while a script may use those of all slots of the server
-- ARGV  how many locks to release, TTL of the others in ms; for each lock to release: lock, value, crowd; for each lock to acquire: lock,
--       value, crowd, fence
-- Returns  for each lock its first token, or 1 if it was released, or 0 if it was left alone, or -1 if its slot is elsewhere or on its way;
--          then for each lock to acquire how many spare tokens it has. Each lock that was left alone takes a script of its own.
--
-- A command that fails leaves its lock alone, and does not keep the script from the others.
local try, words, leaving, ttl = redis.pcall, ARGV, tonumber(ARGV[1]), ARGV[2]

--- @include "token"
local micros = clock()
-- As many numbers as one lock may have (`LockOptions::hand_over`).
local NUMBERS = 65536

-- Nil if no other client is involved with the locks of this crowd's slot, else what to reply. In a slot on its way, the server refuses to look
-- for a key that it does not have. So once it has said that there is no crowd, all keys of the slot are here.
local function hindrance(crowd)
  local crowds = try('EXISTS', crowd)
  if crowds ~= 0 then
    return crowds == 1 and 0 or -1
  end
end

-- The numbers come before the lock, since there is no lock without a token.
local function acquire(lock, value, fence)
  local numbered, first, spare = pcall(number_grant, fence, micros, NUMBERS - 1)
  local stored = numbered and first and try('SET', lock, value, 'PX', ttl, 'NX')
  if stored and stored.ok then
    return first, spare
  end
  return 0, 0
end

local reply, spares, at = {}, {}, 3
for n = 1, leaving do
  local lock, value, crowd = words[at], words[at + 1], words[at + 2]
  local hindered = hindrance(crowd)
  local released = not hindered and try('GET', lock) == value and try('DEL', lock) == 1
  reply[n], at = released and 1 or hindered or 0, at + 3
end
while words[at] do
  local lock, value, crowd, fence = words[at], words[at + 1], words[at + 2], words[at + 3]
  local n, hindered = #spares + 1, hindrance(crowd)
  reply[leaving + n], spares[n], at = hindered, 0, at + 4
  if not hindered then
    reply[leaving + n], spares[n] = acquire(lock, value, fence)
  end
end
for n = 1, #spares do
  reply[#reply + 1] = spares[n]
end
return reply
