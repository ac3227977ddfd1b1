//! `new`: a project with agents, a manifest and a test.

use std::fs::{self, File};
use std::io::{self, Write};

use sealbus_seal::PlatformName;
use serde_json::json;

use crate::arguments::{New, Template};
use crate::error::CliError;
use crate::output::Output;

/// Stands for the project's name in a template.
const NAME: &str = "NAME";
const README: &str = include_str!("../../templates/README.md");
const PYPROJECT: &str = include_str!("../../templates/pyproject.toml");

/// The files of a template that are not the same for all.
struct Files {
    agents: &'static str,
    test: &'static str,
    manifest: &'static str,
}

macro_rules! files {
    ($folder:literal) => {
        Files {
            agents: include_str!(concat!("../../templates/", $folder, "/agents.py")),
            test: include_str!(concat!("../../templates/", $folder, "/test_agents.py")),
            manifest: include_str!(concat!("../../templates/", $folder, "/platform.toml")),
        }
    };
}

impl Template {
    const fn files(self) -> Files {
        match self {
            Self::Books => files!("books"),
            Self::Sensors => files!("sensors"),
            Self::Painters => files!("painters"),
        }
    }
}

/// `sealbus new FOLDER`. It overwrites nothing.
pub(crate) fn new(new: &New, output: Output) -> Result<(), CliError> {
    let name = new.folder.file_name().and_then(|name| name.to_str());
    let usage = |message: String| CliError::Usage {
        message,
        help: "name a folder, such as bookshop: its name becomes the platform's".to_owned(),
    };
    let name = name.ok_or_else(|| usage(format!("{} has no name", new.folder.display())))?;
    PlatformName::new(name).map_err(|error| usage(error.to_string()))?;
    let failed = CliError::file("create", &new.folder);
    fs::create_dir_all(&new.folder).map_err(&failed)?;
    let filled = fs::read_dir(&new.folder).map_err(&failed)?.next().is_some();
    if filled {
        return Err(CliError::Usage {
            message: format!("{} is not empty", new.folder.display()),
            help: "name a new folder: sealbus new bookshop-2".to_owned(),
        });
    }
    let Files {
        agents,
        test,
        manifest,
    } = new.template.files();
    let files = [
        ("agents.py", agents),
        ("test_agents.py", test),
        ("platform.toml", manifest),
        ("pyproject.toml", PYPROJECT),
        ("README.md", README),
    ];
    for (file, text) in files {
        let path = new.folder.join(file);
        write_new(&path, &text.replace(NAME, name)).map_err(|source| CliError::File {
            action: "write",
            path,
            source,
        })?;
    }
    let files: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
    let told = json!({ "folder": new.folder, "platform": name, "files": files });
    output.show(&told, || {
        let folder = new.folder.display();
        format!(
            "{folder} has {}\n\n  cd {folder}\n  python agents.py   all agents in one program\n  \
             sealbus up         each agent a process of its own\n  pytest             the tests (pip install pytest pytest-asyncio)",
            files.join(", ")
        )
    });
    Ok(())
}

fn write_new(path: &std::path::Path, text: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(text.as_bytes())
}
