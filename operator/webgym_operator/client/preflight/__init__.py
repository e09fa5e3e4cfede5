"""What can be known of a run before it is submitted: judgements of what the API server has, and a look at all of it."""
