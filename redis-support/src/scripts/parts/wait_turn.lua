-- Refuses: keeps a place for who will wait, which has the place `rank` or none, and has the server tell it when to look again.
local function wait_turn(rank, micros, refusal)
  local id, place, patience = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
  if place == 0 then
    return refusal
  end
  if patience > 0 then
    local known = '1 ' .. patience
    if ARGV[7] then
      known = table.concat({known, digits(micros), ARGV[2], ARGV[3], ARGV[7], ARGV[1]}, ' ')
    end
    local queued
    queued, rank = pcall(queue_up, KEYS[4], KEYS[6], id, rank, known, place, micros)
    if not queued then
      -- When memory is full there is no place, and those who would do without one poll.
      return refusal
    end
  else
    rank = queue_up(KEYS[4], KEYS[6], id, rank, '1', place, micros)
  end
  if rank > 0 then
    redis.pcall('SET', KEYS[8], '1', 'NX', 'PX', place)
    redis.call('GET', KEYS[8])
  end
  if patience > 0 then
    refusal[5] = place
    refusal[6] = ARGV[7] and micros
  end
  return refusal
end
