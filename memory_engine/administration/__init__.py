"""Acts on a store as a whole: erasing and its proof, holds, retention. Each is recorded, with who asked and why."""
