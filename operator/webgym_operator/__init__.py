"""The Kubernetes operator for WebGymRun resources.

Decisions are pure functions: :mod:`resources` says what a run consists of, :mod:`reconcile` what to do about what is
seen, :mod:`autoscale` how many workers there should be. Around them lies a thin layer that watches, writes and keeps
time: :mod:`controller`, :mod:`handlers`, :mod:`program`.
"""
