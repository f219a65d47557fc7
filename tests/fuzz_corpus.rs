//! Replays every input of `fuzz/corpus` and every finding kept there, without the fuzzer.

use std::fs;
use std::path::Path;

#[path = "../fuzz/exercise.rs"]
mod exercise;

#[test]
fn every_corpus_file_runs_clean() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let manifest = fs::read_to_string(corpus.with_file_name("Cargo.toml")).expect("a manifest");
    let mut files = 0;
    let mut targets = 0;
    for target in manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")) {
        let target = target.trim_end_matches(".rs\"");
        let mut of_target = 0;
        for entry in fs::read_dir(corpus.join(target)).expect(target) {
            let path = entry.expect("an entry").path();
            let data = fs::read(&path).expect("a file");
            let run = std::panic::catch_unwind(|| exercise::run(target, &data));
            assert!(run.is_ok(), "{} fails", path.display());
            of_target += 1;
        }
        assert!(of_target > 0, "{target} has no corpus");
        files += of_target;
        targets += 1;
    }
    assert!(targets >= 10 && files >= 2 * targets, "{files} files of {targets} targets");
}
