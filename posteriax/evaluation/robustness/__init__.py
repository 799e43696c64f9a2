"""What shifted, attacked or held-out data show about a posterior: attacks, drift, conformal sets, recalibration."""
