-- The record of a quorum member is a hash. It contains its identity (`id`) and the start of this
-- identity (`since`, in µs). It also contains the process that has kept all replies since then
-- (`run`), whether this process has all data on the disk (`durable`), and the quorum configuration
-- that the server has joined, if any. The minimum token, which no token with this configuration
-- exceeds, is a separate key. It changes with each grant, and the server would notify all clients
-- that have read the hash.

local NO_MEMBER = 'NOMEMBER this server has no vote in the quorum'

-- Returns the id of this process. It is unique, and no saved data can restore it.
local function this_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- Reads a number with a command that does not count as a read, because the server would send
-- notifications for it. Returns nil if the key does not contain a number.
local function number_at(key)
  return tonumber(redis.call('GETEX', key) or '0')
end

-- Raises the number under `key` to the number in `text`, if it is smaller.
local function raise(key, text)
  local number = number_at(key)
  if number and number < tonumber(text) then
    redis.call('SET', key, text)
  end
  return number ~= nil
end
