"""Online prediction: classify every step of several sequences as it arrives, with a model fitted to noisy labels."""

import numpy as np

import labeltide as lt

study = lt.make_sequences(n=120, n_steps=40, n_features=6, stay=0.9, random_state=0)
noise = lt.make_noise("growth", n_steps=40, rate=0.3)
recorded = lt.corrupt(study, noise)
clf = lt.METHODS["continuous"](random_state=0, epochs=60).fit(recorded.features[:100], recorded.labels[:100])

arriving = study.features[100:]  # 20 sensors: (sensors, steps, features)
stream = clf.stream()
for step in range(40):
    chances = stream.push(arriving[:, step])  # of each true label, now: (sensors, classes)
    if step % 10 == 9:
        right = clf.classes_[chances.argmax(-1)] == study.clean_labels[100:, step]
        print(f"step {step + 1:2d}: {right.mean():.0%} of the sensors are read right")

whole = clf.predict_proba(arriving)[:, -1]
print(f"largest difference to whole sequences: {np.abs(chances - whole).max():.0e}")
