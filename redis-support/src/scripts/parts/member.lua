-- A server as a member of a quorum is a hash: its identity (`id`) and when that began (`since`, in µs), the process that has surely
-- kept all answers given under it (`run`), whether that process has all of it on disk (`durable`), and the charter under which the
-- server is enlisted, if it is. The floor, which no token under the charter is above, is a key by itself: it changes with each grant,
-- and the server reports a change of the hash to all clients that have read it.

local NO_MEMBER = 'NOMEMBER this server has no vote under the charter'

-- The id of this process. No two have the same, and nothing that the server saves brings one back.
local function this_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- Reads a number, by a command that the server does not take for a read, of which it would tell us. Nil if something else lies there.
local function number_at(key)
  return tonumber(redis.call('GETEX', key) or '0')
end

-- Raises the number under `key` to that in `text`, if it is smaller.
local function raise(key, text)
  local number = number_at(key)
  if number and number < tonumber(text) then
    redis.call('SET', key, text)
  end
  return number ~= nil
end
