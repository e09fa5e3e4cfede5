"""From a page to an observation: what is on it, how it fits the instruction, and the arrays the policy sees."""
