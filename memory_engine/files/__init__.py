"""Files of logs, asked as a whole: verified in several processes, compared under several compactors."""
