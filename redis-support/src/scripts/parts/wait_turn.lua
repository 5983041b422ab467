-- Refuses: keeps a place for who will wait, and has the server tell it when to look again.
local function wait_turn(keys, args, id, rank, place, patience, micros, refusal)
  if place == 0 then
    return refusal
  end
  if patience > 0 then
    local known = '1 ' .. patience
    if args[7] then
      known = table.concat({known, digits(micros), args[2], args[3], args[7], args[1]}, ' ')
    end
    local queued
    queued, rank = pcall(queue_up, keys[4], keys[6], id, rank, known, place, micros)
    if not queued then
      -- When memory is full there is no place, and those who would do without one poll.
      return refusal
    end
  else
    rank = queue_up(keys[4], keys[6], id, rank, '1', place, micros)
  end
  if rank > 0 then
    redis.pcall('SET', keys[8], '1', 'NX', 'PX', place)
    redis.call('GET', keys[8])
  end
  if patience > 0 then
    refusal[5] = place
    refusal[6] = args[7] and micros
  end
  return refusal
end
