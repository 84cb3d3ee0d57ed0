-- Shared: classes, app, queue and labels: a new one learns which living nodes fit it, a new node learns its classes.
-- include base

local function know(class)
  if redis.call('SADD', P .. 'classes', class) == 0 then return end
  -- include match
  for _, node in ipairs(redis.call('ZRANGE', P .. 'alive', 0, -1)) do match(node, class) end
end

local function create(class)
  know(class)
  redis.call('HINCRBY', P .. 'counts', 'created', '1')
end
