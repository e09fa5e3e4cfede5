"""Commands that submit, watch and fetch runs on a cluster, from a user's machine.

They speak to the API server alone, with the rights of whoever calls them; the operator does the rest.
"""
