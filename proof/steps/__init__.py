"""Each step of a seed, as the server did it: recorded, held against the model, and done again at a store alone."""
