// Placeholder until the first operator of this library lands.
