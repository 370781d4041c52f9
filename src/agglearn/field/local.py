"""The engine of one machine: persistent chains moved by threads.

The chains sample the field π(x,y) ∝ exp(Σ_k φ_k(x)(μ_k + yθ_k) + yθ₀) at the weights of the day. A
sweep redraws every feature of every chain given the rest, and then its label.
"""

from __future__ import annotations

